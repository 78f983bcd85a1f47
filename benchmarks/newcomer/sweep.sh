tetris-sim sweep sweep.yaml --over 'boundaries.x+.h=50:600:12'
