# Target torch_xla::torch: headers, libraries and ABI of the torch that ${Python_EXECUTABLE} imports.
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/describe_torch.py"
  OUTPUT_VARIABLE torch_description
  ERROR_VARIABLE torch_error
  RESULT_VARIABLE torch_status
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_status EQUAL 0)
  message(FATAL_ERROR
    "torch cannot be imported by ${Python_EXECUTABLE}, and torch_xla is built against it.\n"
    "Install torch there first (pip install torch==2.13.0), then build without isolation:\n"
    "  pip install --no-build-isolation .\n${torch_error}")
endif()

# One `KEY=value` a line; values that are lists are separated by `;` already.
string(REPLACE ";" "\\;" torch_description "${torch_description}")
string(REPLACE "\n" ";" torch_description "${torch_description}")
foreach(line IN LISTS torch_description)
  if(line MATCHES "^([A-Z0-9_]+)=(.*)$")
    set(TORCH_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
  endif()
endforeach()
message(STATUS "torch ${TORCH_VERSION} at ${TORCH_LIB_DIR}")

add_library(torch_xla_torch INTERFACE)
add_library(torch_xla::torch ALIAS torch_xla_torch)
target_include_directories(torch_xla_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS}
                                                            ${Python_INCLUDE_DIRS})
target_compile_definitions(torch_xla_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${TORCH_CXX11_ABI})
foreach(name IN ITEMS c10 torch_cpu torch torch_python)
  set(library "${TORCH_LIB_DIR}/lib${name}${CMAKE_SHARED_LIBRARY_SUFFIX}")
  if(NOT EXISTS "${library}")
    message(FATAL_ERROR "torch ${TORCH_VERSION} has no ${library}; is the installation complete?")
  endif()
  target_link_libraries(torch_xla_torch INTERFACE "${library}")
endforeach()
