"""The cases that judge a scheduler, one folder for each suite; `features.yaml` lists the rows that they verify."""
