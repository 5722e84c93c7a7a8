#!/bin/sh
# The headers' plain comments as doxygen wants them: those that begin a line speak of what follows, those behind code of what stands before.
exec sed -E -e '1s,^/\* ,/** @file\n * ,' -e 's,^( *)/\* ,\1/** ,' -e 's,([^ ].*[,;}{]) +/\* ,\1 /**< ,' "$1"
