# tests/cpp/<layer>/*_test.cpp -> one executable txla_<layer>_tests, run by CTest.
#
# TORCH_XLA_TEST_PLUGINS in a test's environment holds the PJRT plugins that the interpreter has
# installed, as absolute paths separated by ':'.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  set(url https://github.com/google/googletest/archive/refs/tags/v1.15.2.tar.gz)
  set(archive "${PROJECT_BINARY_DIR}/googletest.tar.gz")
  message(STATUS "GoogleTest is not installed, fetching its source from ${url}")
  file(DOWNLOAD ${url} "${archive}" STATUS download)
  list(GET download 0 failed)
  if(failed)
    file(REMOVE "${archive}")
    message(WARNING
      "The C++ tests are left out: GoogleTest is neither installed nor could it be fetched.\n"
      "On Debian or Ubuntu: sudo apt-get install libgtest-dev")
    return()
  endif()
  include(FetchContent)
  set(INSTALL_GTEST OFF)
  FetchContent_Declare(googletest URL "${archive}" DOWNLOAD_EXTRACT_TIMESTAMP ON EXCLUDE_FROM_ALL)
  FetchContent_MakeAvailable(googletest)
endif()

execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_plugins.py"
  OUTPUT_VARIABLE TORCH_XLA_TEST_PLUGINS
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "PJRT plugins for the C++ tests: ${TORCH_XLA_TEST_PLUGINS}")

file(GLOB test_folders LIST_DIRECTORIES true CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cpp/*")
foreach(folder IN LISTS test_folders)
  get_filename_component(layer "${folder}" NAME)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp" "${folder}/*.h")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(NOT tests OR NOT TARGET txla_${layer})
    continue()
  endif()
  set(target txla_${layer}_tests)
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/csrc"
                                               "${PROJECT_SOURCE_DIR}/tests/cpp")
  # What a layer prints is checked by compiling it, so every torch-free test may use pjrt.
  torch_xla_link(${target} ${layer} pjrt)
  target_link_libraries(${target} PRIVATE GTest::gtest_main)
  # One CTest entry an executable: a PJRT plugin takes longer to start than most tests to run.
  add_test(NAME ${layer} COMMAND ${target})
  set_tests_properties(${layer} PROPERTIES
    ENVIRONMENT "TORCH_XLA_TEST_PLUGINS=${TORCH_XLA_TEST_PLUGINS}")
endforeach()
