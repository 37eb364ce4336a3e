"""The PodMigrationJob controller: which jobs may run (arbitration), and the steps of one job. No I/O."""
