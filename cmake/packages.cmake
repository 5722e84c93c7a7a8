# Debian packages, by cpack in a build folder (tools/packages.sh does all of it): libofloadN, which is named by the soname, libofload-dev
# and ofload-tools. Needed packages are found by dpkg-shlibdeps; so nothing may be linked that is of no package, like a CUDA Runtime of
# its own.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
# Who answers for the packages, as "Name <address>"; whoever publishes them gives theirs.
set(OFLOAD_PACKAGE_CONTACT "libofload packagers <root@localhost>" CACHE STRING "The packages' maintainer, \"Name <address>\"")
set(CPACK_PACKAGE_CONTACT "${OFLOAD_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_FILE_NAME ofload-${PROJECT_VERSION})
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev)
if(OFLOAD_BUILD_PROGRAMS)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SOURCE ofload)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
configure_file(${CMAKE_CURRENT_LIST_DIR}/packages/check.cmake.in ${PROJECT_BINARY_DIR}/packages/check.cmake @ONLY)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/packages/check.cmake)

set(about "What fits stays on the device; the rest waits in pinned host memory and is
copied in every step, just before it is needed. One copy of a weight serves
any number of sequences, so a long queue of prompts runs well; a forecast of
memory and speed comes before anything runs.

This package has")
set(runtime libofload${OFLOAD_ABI})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${runtime})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/packages/triggers)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "${about} the shared library.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libofload-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${runtime} (= ${PROJECT_VERSION}-1), libhwloc-dev, libcjson-dev")
set(CPACK_DEBIAN_DEV_DESCRIPTION "${about} the headers, the static library and what pkg-config
and CMake need.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME ofload-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "${about} the programs: ofload-plan, which shows layout and speed,
ofload-batch, which answers a file of prompts, and ofload-bench.")

# Each package has its own copy of licence and changes.
set(date_format "%a, %d %b %Y %H:%M:%S +0000")
string(TIMESTAMP OFLOAD_DATE ${date_format} UTC)
configure_file(${CMAKE_CURRENT_LIST_DIR}/packages/changelog.in ${PROJECT_BINARY_DIR}/packages/changelog.Debian @ONLY)
set(documents ${CMAKE_CURRENT_LIST_DIR}/packages/copyright)
if(OFLOAD_GZIP)
  execute_process(COMMAND ${OFLOAD_GZIP} -9nkf ${PROJECT_BINARY_DIR}/packages/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND documents ${PROJECT_BINARY_DIR}/packages/changelog.Debian.gz)
endif()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  install(FILES ${documents} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME} COMPONENT ${component})
endforeach()
include(CPack)
