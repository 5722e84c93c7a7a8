# columns: forecast ms, measured ms, error, least, most, link-bound (1 or 0)
set title "forecast and measurement of a step, wall clock, simulated links"
set xlabel "forecast, ms a step"
set ylabel "measured against forecast, %"
set logscale x
set key top left
plot 0 notitle linetype 5, 3 notitle linetype 5 dashtype 2, -3 notitle linetype 5 dashtype 2, \
     data using ($6 == 1 ? $1 : NaN):3:4:5 with yerrorbars linetype 1 linewidth 1 title "link-bound", \
     data using ($6 == 0 ? $1 : NaN):3:4:5 with yerrorbars linetype 2 linewidth 1 title "compute-bound"
