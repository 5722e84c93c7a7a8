# What is installed, in three components: runtime (the shared library), dev (headers, static library, for pkg-config and CMake), tools.
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ofload)
install(TARGETS ofload_shared EXPORT ofload-shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS ofload_static EXPORT ofload-static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ofload DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev FILES_MATCHING PATTERN "*.h")

# find_package(ofload): the static library is a set of its own, since it alone needs what the library is made of.
include(CMakePackageConfigHelpers)
configure_file(${CMAKE_CURRENT_LIST_DIR}/ofload-config.cmake.in ${PROJECT_BINARY_DIR}/ofload-config.cmake @ONLY)
# Below 1.0 the API may change with the minor number; from then on: SameMajorVersion.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ofload-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ofload-config.cmake ${PROJECT_BINARY_DIR}/ofload-config-version.cmake
        DESTINATION ${config_folder} COMPONENT dev)
foreach(kind shared static)
  install(EXPORT ofload-${kind} NAMESPACE ofload:: FILE ofload-${kind}.cmake DESTINATION ${config_folder} COMPONENT dev)
endforeach()

# pkg-config: the prefix is where the file is, so that the tree may be moved.
set(pc_folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH OFLOAD_PC_PREFIX ${pc_folder} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" OFLOAD_PC_PREFIX ${OFLOAD_PC_PREFIX})
file(RELATIVE_PATH OFLOAD_PC_LIBDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH OFLOAD_PC_INCLUDEDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
# For static linking: what the library itself calls. Not Requires.private, which would ask for all that hwloc in its turn was made of.
set(private ${OFLOAD_HWLOC_LDFLAGS} ${OFLOAD_CJSON_LDFLAGS})
if(OFLOAD_CUDA_STATIC)
  list(APPEND private ${CUDA_cudart_static_LIBRARY} -ldl -lrt)
elseif(OFLOAD_HAVE_CUDA)
  get_filename_component(folder ${CUDA_cudart_LIBRARY} DIRECTORY)
  list(APPEND private -L${folder} -lcudart)
endif()
list(REMOVE_DUPLICATES private)
list(JOIN private " " OFLOAD_PC_PRIVATE)
configure_file(${PROJECT_SOURCE_DIR}/pkgconfig/libofload.pc.in ${PROJECT_BINARY_DIR}/libofload.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/libofload.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

find_program(OFLOAD_GZIP gzip)
mark_as_advanced(OFLOAD_GZIP)
if(OFLOAD_BUILD_PROGRAMS)
  set(programs ofload-plan ofload-batch ofload-bench)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  foreach(program IN LISTS programs)
    install(FILES ${PROJECT_SOURCE_DIR}/examples/common/completion.bash RENAME ${program}
            DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions COMPONENT tools)
    list(APPEND files $<TARGET_FILE:${program}>)
  endforeach()
  if(NOT CMAKE_CROSSCOMPILING AND NOT OFLOAD_SANITIZE) # the programs print their manual pages, so they must run here as they are
    set(man_folder ${PROJECT_BINARY_DIR}/man)
    set(pages *.1)
    if(OFLOAD_GZIP)
      set(pages *.1.gz)
    endif()
    add_custom_command(OUTPUT ${man_folder}.made DEPENDS ${programs} ${CMAKE_CURRENT_LIST_DIR}/man.cmake VERBATIM
                       COMMAND ${CMAKE_COMMAND} "-DPROGRAMS=${files}" -DFOLDER=${man_folder} -DGZIP=$<$<BOOL:${OFLOAD_GZIP}>:${OFLOAD_GZIP}>
                               -P ${CMAKE_CURRENT_LIST_DIR}/man.cmake
                       COMMAND ${CMAKE_COMMAND} -E touch ${man_folder}.made)
    add_custom_target(ofload_man ALL DEPENDS ${man_folder}.made)
    install(DIRECTORY ${man_folder}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools
            FILES_MATCHING PATTERN ${pages})
  endif()
endif()
if(PROJECT_IS_TOP_LEVEL)
  include(cmake/packages.cmake)
endif()
