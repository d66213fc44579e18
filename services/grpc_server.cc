#include "services/grpc_server.h"

#include <grpcpp/client_context.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/security/grpc_messages/uncompressed_messages.h"

namespace fusionllm::services {
namespace {

// The bytes of HealthCheckResponse{status: SERVING}: field 1, varint 1. The request for the server as a whole is empty.
constexpr char kServing[] = "\x08\x01";

}  // namespace

absl::StatusOr<std::unique_ptr<grpc::Server>> Listen(grpc::ServerBuilder& builder, const std::string& address,
                                                     const std::shared_ptr<grpc::ServerCredentials>& credentials, bool logs_json) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::HostPort at, base::SplitHostPort(address));
  grpc::EnableDefaultHealthCheckService(true);
  int port = 0;
  builder.AddListeningPort(address, credentials, &port);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  security::RefuseCompressedMessages(builder);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server on the same port is a mistake
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("--listen: cannot listen on ", address, ": it is in use, or no HOST:PORT of this machine"));
  }
  const std::string sentence = absl::StrCat("listening on ", base::JoinHostPort(at.host, absl::StrCat(port)));
  if (logs_json && at.port != 0) {
    base::Log(base::LogLevel::kInfo, sentence);
  } else {
    std::printf("%s\n", sentence.c_str());
    std::fflush(stdout);
  }
  return server;
}

absl::Status CheckHealth(grpc::ChannelInterface& channel, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
  const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check", grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  const grpc::Status status = grpc::internal::BlockingUnaryCall(&channel, method, &context, request, &response);
  if (!status.ok()) return absl::UnavailableError(absl::StrCat("the gRPC server does not answer: ", status.error_message()));
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (response.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes == kServing ? absl::OkStatus() : absl::UnavailableError("the gRPC server says that it does not serve");
}

}  // namespace fusionllm::services
