"""This broker as the controller, and what it has to do with the controller when that is another one."""
