"""Who may log in and do what, as files, issuers and ZooKeeper say it."""
