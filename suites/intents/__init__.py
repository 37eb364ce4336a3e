"""What one asks of any scheduler: the cases name no project, the dialect of the one under test spells them."""
