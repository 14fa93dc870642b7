# SPDX-License-Identifier: Apache-2.0
#
# How everything here is compiled and linked, and the three ways to add a piece of it:
#   ucmstore_add_library(NAME SOURCES ... LIBS ...)       libucmstore_<NAME>.a
#   ucmstore_add_stage(NAME Posix SOURCES ... LIBS ...)   ucmstore_stages/libucmstore_posix.so
#   ucmstore_add_test(NAME SOURCES ... LIBS ...)          a googletest program, known to ctest
#
# All objects are position independent with hidden visibility. What a shared object shows is said
# by a linker version script, so that no two of them ever meet in one symbol.
include_guard(GLOBAL)

find_package(Threads REQUIRED)

# Compile and link settings of every target of this tree, never seen by those who use it installed.
add_library(ucmstore_settings INTERFACE)
target_compile_features(ucmstore_settings INTERFACE cxx_std_23)
target_compile_definitions(ucmstore_settings INTERFACE UCMSTORE_VERSION="${PROJECT_VERSION}")
target_compile_options(
  ucmstore_settings
  INTERFACE -Wall
            -Wextra
            -Wconversion
            -Wshadow
            -Wnon-virtual-dtor
            -Woverloaded-virtual
            -ffunction-sections
            -fdata-sections
            $<$<BOOL:${UCMSTORE_WERROR}>:-Werror>
            $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
            # Wrong about strings in g++ 12 and 13, as GCC's bug 105651 says.
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
            $<$<CONFIG:Debug>:-D_GLIBCXX_ASSERTIONS>)
if(UCMSTORE_SANITIZE)
  # -fno-sanitize-recover: a finding fails the test instead of scrolling past.
  # -fno-sanitize=vptr: that check makes a pipe to look at memory, and calls every object invalid
  # where a test has left no descriptor for it.
  target_compile_options(
    ucmstore_settings
    INTERFACE -fsanitize=${UCMSTORE_SANITIZE} -fno-sanitize-recover=all -fno-sanitize=vptr
              -fno-omit-frame-pointer
              -D_GLIBCXX_ASSERTIONS)
  target_link_options(ucmstore_settings INTERFACE -fsanitize=${UCMSTORE_SANITIZE})
endif()

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The build tree looks like an installation: each core library with ucmstore_stages/ beside it.
# Test programs lie there too, for the static pipeline in them looks beside their own address.
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
set(UCMSTORE_STAGES_DIRECTORY "${PROJECT_BINARY_DIR}/ucmstore_stages")

set(UCMSTORE_INCLUDE_DIRECTORIES "${PROJECT_SOURCE_DIR}/src/cpp"
                                 "${PROJECT_SOURCE_DIR}/src/cpp/include")

# Names the symbols a shared object shows; everything else in it is local.
function(ucmstore_export_only target script)
  set(path "${PROJECT_SOURCE_DIR}/cmake/${script}")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${path}" "LINKER:--gc-sections")
  set_property(
    TARGET ${target}
    APPEND
    PROPERTY LINK_DEPENDS "${path}")
endfunction()

# A static library of one folder. Without sources it carries its headers and LIBS only.
function(ucmstore_add_library NAME)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  set(target ucmstore_${NAME})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(
      ${target} PRIVATE $<BUILD_INTERFACE:ucmstore_settings>
                        $<BUILD_INTERFACE:ucmstore_third_party_spdlog> ucmstore_fmt)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(ucmstore::${NAME} ALIAS ${target})
  target_compile_features(${target} ${scope} cxx_std_23)
  set(includes "")
  foreach(directory IN LISTS UCMSTORE_INCLUDE_DIRECTORIES)
    list(APPEND includes "$<BUILD_INTERFACE:${directory}>")
  endforeach()
  target_include_directories(
    ${target} ${scope} ${includes} "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
                       "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ucmstore/sdk>")
  target_link_libraries(${target} ${scope} ${arg_LIBS} Threads::Threads)
endfunction()

# A stage: its objects, which unit tests link directly, and the plugin made of them. The source
# plugin.cc (or *_plugin.cc), with the entry point, is in the plugin only, so that a test may link
# the objects of several stages. NO_INSTALL: for tests alone.
function(ucmstore_add_stage)
  cmake_parse_arguments(PARSE_ARGV 0 arg "NO_INSTALL" "NAME" "SOURCES;LIBS")
  if(NOT arg_SOURCES)
    message(STATUS "ucmstore: stage ${arg_NAME} has no sources yet")
    return()
  endif()
  string(TOLOWER "${arg_NAME}" lower)
  set(entry ${arg_SOURCES})
  list(FILTER entry INCLUDE REGEX "(^|_|/)plugin\\.cc$")
  set(sources ${arg_SOURCES})
  list(FILTER sources EXCLUDE REGEX "(^|_|/)plugin\\.cc$")
  if(NOT sources)
    message(FATAL_ERROR "stage ${arg_NAME}: besides its plugin.cc it needs a source of its own")
  endif()

  set(objects ucmstore_stage_${lower}_objects)
  add_library(${objects} OBJECT ${sources})
  target_link_libraries(
    ${objects}
    PUBLIC ucmstore_task ${arg_LIBS}
    PRIVATE ucmstore_settings ucmstore_third_party_spdlog)

  set(plugin ucmstore_stage_${lower})
  add_library(${plugin} MODULE ${entry})
  target_link_libraries(${plugin} PRIVATE ${objects} ucmstore_settings ucmstore_third_party_spdlog)
  set_target_properties(
    ${plugin} PROPERTIES OUTPUT_NAME ucmstore_${lower}
                         LIBRARY_OUTPUT_DIRECTORY "${UCMSTORE_STAGES_DIRECTORY}")
  ucmstore_export_only(${plugin} plugin.map)
  set_property(GLOBAL APPEND PROPERTY UCMSTORE_ALL_STAGES ${plugin})
  if(arg_NO_INSTALL)
    # Also alone in a folder, so that tests of an installed package can add it to the plugin path.
    add_custom_command(
      TARGET ${plugin}
      POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E make_directory "${PROJECT_BINARY_DIR}/ucmstore_test_stages"
      COMMAND ${CMAKE_COMMAND} -E copy "$<TARGET_FILE:${plugin}>"
              "${PROJECT_BINARY_DIR}/ucmstore_test_stages"
      VERBATIM)
  else()
    set_property(GLOBAL APPEND PROPERTY UCMSTORE_INSTALLED_STAGES ${plugin})
  endif()
endfunction()

# A googletest program, each of its tests one of ctest's, in a process of its own and bounded in
# time. All stages are built before it. TIMEOUT is in seconds, for each test. SHARDS n: for a
# program of very many quick tests; they are dealt out to n of ctest's, each a process for its
# share, which reports in gtest_reports/ what it skipped.
function(ucmstore_add_test NAME)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;SHARDS" "SOURCES;LIBS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${NAME} ${arg_SOURCES})
  target_include_directories(${NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests/cpp"
                                             "${PROJECT_SOURCE_DIR}/src/cpp")
  target_link_libraries(${NAME} PRIVATE ${arg_LIBS} ucmstore_settings ucmstore_third_party_spdlog
                                        GTest::gtest_main GTest::gtest ${CMAKE_DL_LIBS})
  target_compile_definitions(
    ${NAME} PRIVATE UCMSTORE_TEST_STAGES_DIR="${UCMSTORE_STAGES_DIRECTORY}"
                    UCMSTORE_TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")
  get_property(stages GLOBAL PROPERTY UCMSTORE_ALL_STAGES)
  if(stages)
    add_dependencies(${NAME} ${stages})
  endif()
  if(arg_SHARDS)
    math(EXPR last "${arg_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME ${NAME}.${shard} COMMAND ${NAME} --gtest_brief=1)
      set(environment
          GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${shard}
          GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/gtest_reports/${NAME}.${shard}.xml)
      set_tests_properties(${NAME}.${shard} PROPERTIES TIMEOUT ${arg_TIMEOUT} ENVIRONMENT
                                                       "${environment}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(
    ${NAME}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()
