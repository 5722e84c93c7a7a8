# Compiler flags that every target gets.
add_library(ofload_flags INTERFACE)
target_compile_definitions(ofload_flags INTERFACE _GNU_SOURCE)
target_compile_options(ofload_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow $<$<BOOL:${OFLOAD_WERROR}>:-Werror>)
if(OFLOAD_SANITIZE)
  target_compile_options(ofload_flags INTERFACE -fsanitize=${OFLOAD_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(ofload_flags INTERFACE -fsanitize=${OFLOAD_SANITIZE})
endif()
