"""Where sessions lie on disk: the log, the folders, snapshots, cards, masking of secrets."""
