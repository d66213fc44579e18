#include "lib/security/grpc_messages/uncompressed_messages.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fusionllm::security {
namespace {

constexpr size_t kBombBytes = 8 << 20;  // some 8 kB on the wire
constexpr std::chrono::seconds kCallTimeout(20);

grpc::ByteBuffer Bytes(size_t count) {
  const std::string text(count, 'x');
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

// Takes any call, and answers with as many bytes as it is asked for, compressed if asked for.
class AnyService : public grpc::CallbackGenericService {
 public:
  AnyService(size_t answer_bytes, bool compresses) : answer_bytes_(answer_bytes), compresses_(compresses) {}
  size_t received_bytes() const { return received_bytes_; }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    class Reactor : public grpc::ServerGenericBidiReactor {
     public:
      explicit Reactor(AnyService& service) : service_(service) { StartRead(&request_); }
      void OnReadDone(bool ok) override {
        if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message came"));
        service_.received_bytes_ = request_.Length();
        answer_ = Bytes(service_.answer_bytes_);
        StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
      }
      void OnDone() override { delete this; }

     private:
      AnyService& service_;
      grpc::ByteBuffer request_, answer_;
    };
    if (compresses_) context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    return new Reactor(*this);
  }

 private:
  const size_t answer_bytes_;
  const bool compresses_;
  std::atomic<size_t> received_bytes_ = 0;
};

class Server {
 public:
  Server(bool refuses, size_t answer_bytes, bool compresses) : service_(answer_bytes, compresses) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    builder.SetMaxReceiveMessageSize(-1);
    if (refuses) RefuseCompressedMessages(builder);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~Server() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  size_t received_bytes() const { return service_.received_bytes(); }

 private:
  int port_ = 0;
  AnyService service_;
  std::unique_ptr<grpc::Server> server_;
};

struct Answer {
  grpc::Status status;
  size_t bytes = 0;
};

Answer Call(const Server& server, bool refuses, bool compresses) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  if (refuses) RefuseCompressedMessages(arguments);
  grpc::GenericStub stub(grpc::CreateCustomChannel(server.address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  if (compresses) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, "/test/Any", Bytes(kBombBytes), &queue);
  call->StartCall();
  Answer answer;
  grpc::ByteBuffer response;
  call->Finish(&response, &answer.status, &answer);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  if (answer.status.ok()) answer.bytes = response.Length();
  return answer;
}

TEST(UncompressedMessagesTest, AServerRefusesACompressedCallAndInflatesNothing) {
  const Server open(/*refuses=*/false, 1, false);
  EXPECT_TRUE(Call(open, false, /*compresses=*/true).status.ok()) << "gRPC's own way";
  EXPECT_EQ(open.received_bytes(), kBombBytes);
  const Server server(/*refuses=*/true, 1, false);
  EXPECT_EQ(Call(server, false, /*compresses=*/true).status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(server.received_bytes(), 0u);
  EXPECT_TRUE(Call(server, false, /*compresses=*/false).status.ok());
  EXPECT_EQ(server.received_bytes(), kBombBytes);
}

TEST(UncompressedMessagesTest, AChannelDoesNotInflateACompressedAnswer) {
  const Server server(/*refuses=*/false, kBombBytes, /*compresses=*/true);
  EXPECT_EQ(Call(server, /*refuses=*/false, false).bytes, kBombBytes) << "gRPC's own way";
  EXPECT_LT(Call(server, /*refuses=*/true, false).bytes, kBombBytes / 100) << "as it came, which is no message of any type";
}

}  // namespace
}  // namespace fusionllm::security
