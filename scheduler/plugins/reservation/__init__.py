"""Resources held on nodes for pods that do not exist yet (Koordinator pkg/scheduler/plugins/reservation)."""
