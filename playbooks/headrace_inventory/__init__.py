"""What the plays ask of an inventory: where its services are, and what is wrong with it.

Functions of Ansible's `groups` and `hostvars`; they look at variables and at the kit's own files, never at a machine.
"""
