"""The shell: sockets, timers, tasks, and the wiring of the parts."""
