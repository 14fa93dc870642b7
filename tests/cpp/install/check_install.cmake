# SPDX-License-Identifier: Apache-2.0
#
# Installs the build tree into a prefix, moves the prefix, builds every C++ example from it alone
# and runs them: the package is relocatable, the foreign stages open through a pipeline, and a
# failure exits non-zero. Run by ctest: cmake -DBUILD=... -DSOURCE=... -DWORK=... -P this.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
set(prefix "${WORK}/moved")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix")
file(RENAME "${WORK}/prefix" "${prefix}")

file(GLOB_RECURSE installed RELATIVE "${prefix}" "${prefix}/*")
if(installed MATCHES "libucmstore_fault|/_core\\.")
  message(FATAL_ERROR "installed, but should not be: ${installed}")
endif()

foreach(example IN ITEMS embed_cpp custom_stage custom_stage_abi)
  run("${CMAKE_COMMAND}"
      -G "${GENERATOR}"
      -S "${SOURCE}/examples/${example}"
      -B "${WORK}/${example}"
      "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
      "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
      "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"
      "-DCMAKE_PREFIX_PATH=${prefix}"
      -DCMAKE_BUILD_TYPE=Release)
  run("${CMAKE_COMMAND}" --build "${WORK}/${example}")
endforeach()

set(embed "${WORK}/embed_cpp/embed_cpp")
run("${embed}" Dram)
run("${embed}" Posix "posix.roots=${WORK}/root") # the second finds what the first stored
run("${embed}" Posix "posix.roots=${WORK}/root")
run("${embed}" Shelf "store.plugin_path=${WORK}/custom_stage")
run("${embed}" Box "store.plugin_path=${WORK}/custom_stage_abi" box.max_blocks=100)

# What must fail, and what it must say.
function(must_fail words)
  execute_process(
    COMMAND ${ARGN}
    RESULT_VARIABLE result
    ERROR_VARIABLE text
    OUTPUT_QUIET)
  if(result EQUAL 0)
    message(FATAL_ERROR "succeeded, but should not: ${ARGN}")
  endif()
  if(NOT text MATCHES "${words}")
    message(FATAL_ERROR "said nothing of '${words}': ${text}")
  endif()
  message(STATUS "fails as it should: ${text}")
endfunction()
must_fail("Dram" "${embed}" Drum)
must_fail("max_blocks" "${embed}" Box "store.plugin_path=${WORK}/custom_stage_abi" box.max_block=1)
