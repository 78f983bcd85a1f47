"""Plain data of the scheduler: a problem in numbers, links and capacities, shares and plans.
Nothing here measures or decides.
"""
