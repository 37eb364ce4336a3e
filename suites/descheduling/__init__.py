"""Cases about migration and descheduling."""
