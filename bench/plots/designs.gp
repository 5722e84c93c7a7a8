# columns: compute share, four designs
set title "step time over the bound, wall clock, simulated link"
set xlabel "compute ÷ copy time"
set ylabel "step ÷ bound"
set yrange [1:*]
set key top left
plot data using 1:2 with linespoints linetype 2 title "copy, then compute", data using 1:3 with linespoints linetype 3 title "two layer slots, contiguous", \
     data using 1:4 with linespoints linetype 4 title "two layer slots, spread", data using 1:5 with linespoints linetype 1 title "libofload"
