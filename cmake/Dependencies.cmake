# Every outside library the project uses, found once.
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(Protobuf REQUIRED)  # the module; it must come before gRPC, whose config file names its targets
find_package(gRPC CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(civetweb CONFIG REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)  # its own config file insists on OpenCL headers
add_library(dnnl INTERFACE)
target_link_libraries(dnnl INTERFACE ${DNNL_LIBRARY})
get_target_property(GRPC_CPP_PLUGIN gRPC::grpc_cpp_plugin LOCATION)
