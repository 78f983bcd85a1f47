tetris-sim run restart.yaml --set time.t_end='2.5 s'
tetris-sim restart results/restart --set time.t_end='5 s'
