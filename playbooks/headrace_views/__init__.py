"""What people are shown of a pipeline: what a roll-out would do, how every host is, and what goes into a support bundle.

Pure: texts and sentences from what modules found on hosts. It knows nothing of Ansible's connections.
"""
