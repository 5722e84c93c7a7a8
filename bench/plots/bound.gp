# columns: link GB/s, the worst of parts and of whole layers over the models and memories
set title "the worst step over the bound without any ring, modelled"
set xlabel "link, GB/s"
set ylabel "step ÷ bound"
set logscale x
set xtics (3.3, 12, 25, 55)
set xrange [3:60]
set yrange [1:*]
set key center right
plot data using 1:3 with linespoints linetype 2 title "whole layers in two slots", data using 1:2 with linespoints linetype 1 title "libofload"
