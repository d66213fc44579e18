#include "lib/security/grpc_messages/testing/compressed_call.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <chrono>
#include <string>

namespace fusionllm::security {
namespace {

constexpr std::chrono::minutes kCallTimeout(1);
// HealthCheckRequest{service: ""} after a field that is not known, long enough that compressing it pays: gRPC sends what does not as it is.
std::string Request() { return std::string("\x7a\x64", 2) + std::string(100, 'x'); }

}  // namespace

grpc::StatusCode CodeOfCompressedCall(const std::string& address) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  context.set_wait_for_ready(true);
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const grpc::Slice slice(Request());
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, &status);
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok ? status.error_code() : grpc::StatusCode::UNKNOWN;
}

}  // namespace fusionllm::security
