# Programs that are carried to a machine with nothing but glibc and, with FUSIONLLM_CUDA, a driver (`make cuda-portable`): every other library is
# in them. Which of the imported targets are archives is decided here, after Dependencies.cmake has found them.
if(NOT FUSIONLLM_PORTABLE)
  return()
endif()
# It takes archives in any order; GNU ld would want them after all that uses them, and the config files of packages list them for shared
# libraries, which bring their own.
if(NOT LLD_PROGRAM)
  message(FATAL_ERROR "FUSIONLLM_PORTABLE is ON and there is no ld.lld: install the package lld")
endif()
foreach(name highway prometheus-cpp)  # of curl's StaticCurl.cmake has made sure
  if(NOT EXISTS ${FUSIONLLM_STATIC_ROOT}/${name}.stamp)
    message(FATAL_ERROR "FUSIONLLM_PORTABLE is ON and ${FUSIONLLM_STATIC_ROOT} has no ${name}: run tools/install-static.sh (make cuda-portable does)")
  endif()
endforeach()

# libNAME.so.1.2 -> libNAME.a, ours before the distribution's: its libcurl.a wants what has no archive. A library that has none stays as it
# is; tools/check-portable.sh finds the program that was linked to it.
function(fusionllm_archive_of shared result)
  set(${result} "" PARENT_SCOPE)
  cmake_path(GET shared PARENT_PATH folder)
  cmake_path(GET shared FILENAME name)
  if(name MATCHES "^(lib.+)\\.(so|a)[.0-9]*$")
    foreach(candidate ${FUSIONLLM_STATIC_ROOT}/lib/${CMAKE_MATCH_1}.a ${folder}/${CMAKE_MATCH_1}.a)
      if(EXISTS ${candidate})
        set(${result} ${candidate} PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endif()
endfunction()

get_property(imported_targets DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS imported_targets)
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(SHARED|STATIC|UNKNOWN)_LIBRARY$")
    continue()
  endif()
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  set(properties IMPORTED_LOCATION)
  foreach(configuration IN LISTS configurations)
    list(APPEND properties IMPORTED_LOCATION_${configuration})
  endforeach()
  foreach(property IN LISTS properties)
    get_target_property(location ${target} ${property})
    if(location)
      fusionllm_archive_of(${location} archive)
      if(archive)
        set_target_properties(${target} PROPERTIES ${property} ${archive})
      endif()
    endif()
  endforeach()
endforeach()
find_library(RE2_ARCHIVE libre2.a REQUIRED)
set_property(TARGET re2::re2 PROPERTY INTERFACE_LINK_LIBRARIES ${RE2_ARCHIVE})  # pkg-config's answer is -lre2
set_property(TARGET hwy PROPERTY INTERFACE_LINK_LIBRARIES ${FUSIONLLM_STATIC_ROOT}/lib/libhwy.a)

add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections -s)
