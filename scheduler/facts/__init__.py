"""Plain data of the scheduler: a problem in numbers (`domain.py`), shares and plans (`shares.py`).
Nothing here measures or decides.
"""
