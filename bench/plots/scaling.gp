# columns: size, value; one line of log-log
set title title
set xlabel xname
set ylabel yname
set logscale xy
set key off
plot data using 1:2 with linespoints linetype 1
