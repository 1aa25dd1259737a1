"""Files on disk: the run's folder and database, results files, and which rows may be exported."""
