tetris-sim init rod_1d -o verbs.yaml
tetris-sim validate verbs.yaml
tetris-sim materials steel
tetris-sim preview verbs.yaml
tetris-sim plan verbs.yaml
tetris-sim run verbs.yaml --set time.t_end='10 s'
tetris-sim watch results/verbs --once
tetris-sim live verbs.yaml --once --set time.t_end='10 s' --set output.directory=results/live
tetris-sim restart results/verbs --set time.t_end='20 s'
tetris-sim info results/verbs
tetris-sim plot results/verbs
tetris-sim export results/verbs -o verbs.xdmf
tetris-sim report results/verbs
tetris-sim sweep verbs.yaml --over model.material=copper,steel
tetris-sim fit verbs.yaml --data measured.csv --vary initial.constants.bump=40:160 --set time.t_end='10 s'
tetris-sim characterize verbs.yaml conductivity
tetris-sim tune verbs.yaml --budget 5
tetris-sim verify --quick --method cpu.plain
tetris-sim bench cpu --stencils heat-2d --size 500 --rounds 1 --seconds 0.05
tetris-sim doctor
tetris-sim completion bash
