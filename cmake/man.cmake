# cmake -DPROGRAMS=… -DFOLDER=… -DGZIP=… -P man.cmake: the manual page of each program, and of each command that it lists, as it
# prints it for --help-man.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

# page(PROGRAM COMMAND): COMMAND is "" for the program's own page.
function(page program command)
  get_filename_component(name ${program} NAME)
  if(command)
    string(APPEND name -${command})
  endif()
  execute_process(COMMAND ${program} ${command} --help-man OUTPUT_FILE ${FOLDER}/${name}.1 COMMAND_ERROR_IS_FATAL ANY)
  if(GZIP)
    execute_process(COMMAND ${GZIP} -9nk ${FOLDER}/${name}.1 COMMAND_ERROR_IS_FATAL ANY)
  endif()
endfunction()

foreach(program IN LISTS PROGRAMS)
  page(${program} "")
  execute_process(COMMAND ${program} --help-words OUTPUT_VARIABLE words COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+ command\n" commands "${words}")
  foreach(command IN LISTS commands)
    string(REGEX REPLACE " command\n" "" command "${command}")
    page(${program} ${command})
  endforeach()
endforeach()
