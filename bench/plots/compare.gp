# columns: label, PyTorch ms, libofload ms
set title "a step through PyTorch with hooks and through libofload, wall clock, simulated link"
set ylabel "ms a step"
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set xtics rotate by -25 scale 0
set yrange [0:*]
set key top left
plot data using 2:xtic(1) linetype 2 title "PyTorch with hooks", data using 3 linetype 1 title "libofload"
