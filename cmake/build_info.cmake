# torch_xla/_build_info.py: what this build was made with. Read at import, before the extension is
# loaded, so that another torch is met with a sentence and not with an undefined symbol.
execute_process(
  COMMAND git rev-parse --verify HEAD
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  OUTPUT_VARIABLE TORCH_XLA_GIT_REV
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}" TORCH_XLA_CXX_FLAGS)
string(REGEX REPLACE "[\"\\\\]" "" TORCH_XLA_CXX_FLAGS "${TORCH_XLA_CXX_FLAGS}")

if(TORCH_XLA_INPLACE)
  set(build_info "${PROJECT_SOURCE_DIR}/torch_xla/_build_info.py")
else()
  set(build_info "${PROJECT_BINARY_DIR}/_build_info.py")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/build_info.py.in" "${build_info}" @ONLY)
install(FILES "${build_info}" DESTINATION torch_xla)
