"""What scoring and checks leave: results on disk as they come, and the files made of them.

names.py     file names and text as terminals, spreadsheets and other programs can bear them
journal.py   scores as they come, so that a killed command goes on where it stopped
results.py   predictions in order, with how they were flagged and what was not scored
files.py     CSV and JSON
checks.py    what a check of a folder found
"""
