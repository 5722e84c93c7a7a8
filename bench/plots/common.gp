# Readable on light and dark ground: no background, and no colour that is near to white or black.
set terminal svg size 760,430 dynamic font "sans-serif,13"
set border 3 linecolor rgb "#808890"
set tics nomirror textcolor rgb "#808890"
set grid linecolor rgb "#808890" linetype 1 linewidth 0.3
set key textcolor rgb "#808890"
set title textcolor rgb "#808890"
set xlabel textcolor rgb "#808890"
set ylabel textcolor rgb "#808890"
set linetype 1 linecolor rgb "#3f8fd0" linewidth 2 pointtype 7 pointsize 0.7
set linetype 2 linecolor rgb "#d9822b" linewidth 2 pointtype 5 pointsize 0.7
set linetype 3 linecolor rgb "#4c9f6b" linewidth 2 pointtype 9 pointsize 0.8
set linetype 4 linecolor rgb "#b066b8" linewidth 2 pointtype 13 pointsize 0.9
set linetype 5 linecolor rgb "#808890" linewidth 1
