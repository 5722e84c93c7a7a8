# columns: forecast ms, measured ms, error, least, most, kind (1: kernels, link-bound; 0: kernels, compute-bound; 2: products)
set title "forecast and measurement of a step, wall clock, simulated links"
set xlabel "forecast, ms a step"
set ylabel "measured against forecast, %"
set logscale x
set key outside bottom center horizontal
plot 0 notitle linetype 5, 3 notitle linetype 5 dashtype 2, -3 notitle linetype 5 dashtype 2, \
     data using ($6 == 2 ? $1 : NaN):3:4:5 with yerrorbars linetype 3 linewidth 1 title "real products on this machine's cores", \
     data using ($6 == 1 ? $1 : NaN):3:4:5 with yerrorbars linetype 1 linewidth 1 title "simulated kernels, link-bound", \
     data using ($6 == 0 ? $1 : NaN):3:4:5 with yerrorbars linetype 2 linewidth 1 title "simulated kernels, compute-bound"
