# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` lays down for C++ users: find_package(ucmstore) then gives
#   ucmstore::ucmstore   libucmstore.so, the pipeline as an engine holds it
#   ucmstore::sdk        static archives and headers for stages, rebuilt with each release
#   ucmstore::abi        the frozen headers alone
# Headers: include/ucmstore/ holds the frozen ones, include/ucmstore/sdk/ those that are not.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)

set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/ucmstore")
set(_sdk "${CMAKE_INSTALL_INCLUDEDIR}/ucmstore/sdk")
set(_source "${PROJECT_SOURCE_DIR}/src/cpp")

install(DIRECTORY "${_source}/include/ucmstore" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT cpp)
foreach(folder IN ITEMS base io task)
  install(
    DIRECTORY "${_source}/${folder}"
    DESTINATION "${_sdk}"
    COMPONENT cpp
    FILES_MATCHING
    PATTERN "*.h")
endforeach()
# Of the upper layers, what pipeline.h includes.
install(FILES "${_source}/options/option_input.h" DESTINATION "${_sdk}/options" COMPONENT cpp)
install(FILES "${_source}/block_id/namespace.h" DESTINATION "${_sdk}/block_id" COMPONENT cpp)
install(FILES "${_source}/pipeline/lease.h" "${_source}/pipeline/pipeline.h"
        DESTINATION "${_sdk}/pipeline" COMPONENT cpp)

set(_archives ucmstore_abi ucmstore_sdk ucmstore_fmt)
foreach(name IN ITEMS base io task)
  set_target_properties(ucmstore_${name} PROPERTIES EXPORT_NAME ${name})
  list(APPEND _archives ucmstore_${name})
endforeach()
set_target_properties(ucmstore_abi PROPERTIES EXPORT_NAME abi)
set_target_properties(ucmstore_fmt PROPERTIES EXPORT_NAME fmt)
set_target_properties(ucmstore_sdk PROPERTIES EXPORT_NAME sdk)
install(
  TARGETS ucmstore ${_archives}
  EXPORT ucmstore
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/ucmstore" COMPONENT cpp
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)

get_property(_stages GLOBAL PROPERTY UCMSTORE_INSTALLED_STAGES)
install(TARGETS ${_stages} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/ucmstore_stages"
                                   COMPONENT cpp)

install(
  EXPORT ucmstore
  NAMESPACE ucmstore::
  FILE ucmstoreTargets.cmake
  DESTINATION "${_package}"
  COMPONENT cpp)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/ucmstoreConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/ucmstoreConfig.cmake" INSTALL_DESTINATION "${_package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/ucmstoreConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ucmstoreConfig.cmake"
              "${PROJECT_BINARY_DIR}/ucmstoreConfigVersion.cmake" DESTINATION "${_package}"
        COMPONENT cpp)
