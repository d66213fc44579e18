// A broker's ExecutorSessions over real TLS, and peers that open streams to it as executors do. Test code.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/credential_files.h"
#include "lib/security/join_token.h"
#include "services/broker/enrollment.h"
#include "services/broker/executor_sessions.h"
#include "services/credentials.h"

namespace fusionllm::services {

inline constexpr auto kSessionTestTimeout = std::chrono::seconds(60);

inline v1::ExecutorMessage HelloOf(const std::string& name, uint32_t version = kProtocolVersion, uint64_t incarnation = 2) {
  v1::ExecutorMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_name(name);
  hello.set_protocol_version(version);
  hello.set_incarnation(incarnation);
  hello.set_build_version("9.9.9");
  return message;
}

// A stream to the broker, as an executor has one.
class Peer {
 public:
  Peer(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no handshake of another peer is used again
    arguments.SetSslTargetNameOverride("broker");
    stub_ = v1::Broker::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
    context_.set_deadline(std::chrono::system_clock::now() + kSessionTestTimeout);
    stream_ = stub_->Attend(&context_);
  }
  ~Peer() {
    context_.TryCancel();
    if (!finished_) (void)stream_->Finish();
  }
  bool Say(const v1::ExecutorMessage& message) { return stream_->Write(message); }
  // An empty message at the end of the stream.
  v1::BrokerMessage Hear() {
    v1::BrokerMessage message;
    if (!stream_->Read(&message)) message.Clear();
    return message;
  }
  grpc::Status End() {
    finished_ = true;
    stream_->WritesDone();
    return stream_->Finish();
  }

 private:
  std::unique_ptr<v1::Broker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecutorMessage, v1::BrokerMessage>> stream_;
  bool finished_ = false;
};

class ExecutorSessionsTest : public ::testing::Test {
 protected:
  explicit ExecutorSessionsTest(ExecutorSessionsOptions options = {}) {
    EXPECT_TRUE(authority_.Save(Tls()).ok());
    EXPECT_TRUE(security::WriteCredentials(Tls(), "broker", *security::IssueCredentials(authority_, "broker")).ok());
    folder_.Write("tls/token", token_);
    enrollment_ = std::make_unique<Enrollment>(*Enrollment::Load(Tls(), {}, "the job"));
    options.build_version = "1.2.3";
    if (options.welcome.job_document().empty()) options.welcome.set_job_document("the job");
    executor_sessions_ = std::make_unique<ExecutorSessions>(
        options, ExecutorSessions::Handlers{.on_joined = [this](const v1::Hello& hello) { Note(absl::StrCat("joined ", hello.name())); },
                                            .on_message =
                                                [this](const std::string& name, uint64_t incarnation, const v1::ExecutorMessage& message) {
                                                  Note(absl::StrCat(name, " said ", message.sequence()));
                                                  executor_sessions_->Acknowledge(name, incarnation, message.sequence());
                                                },
                                            .on_left =
                                                [this](const std::string& name, uint64_t incarnation, const std::string& why) {
                                                  Leaving();
                                                  Note(absl::StrCat("left ", name, " ", incarnation, ": ", why));
                                                },
                                            .on_enroll =
                                                [this](const v1::EnrollRequest& request) {
                                                  return enrollment_->Enroll(
                                                      request, [](const std::string&) { return false; }, absl::Now());
                                                }});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", LoadCredentials(Tls(), "broker")->enrolling_server, &port);
    builder.RegisterService(executor_sessions_.get());
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~ExecutorSessionsTest() override {
    executor_sessions_->Shutdown("the test is over", false);
    server_->Shutdown(std::chrono::system_clock::now());
  }

  std::string Tls() const { return folder_ / "tls"; }
  void Note(std::string what) {
    const base::MutexLock lock(mutex_);
    notes_.push_back(std::move(what));
    news_.notify_all();
  }
  // What happens first while on_left is called.
  void SetLeaving(std::function<void()> leaving) {
    const base::MutexLock lock(leaving_mutex_);
    leaving_ = std::move(leaving);
  }
  void Leaving() {
    const base::MutexLock lock(leaving_mutex_);
    if (leaving_) leaving_();
  }
  std::vector<std::string> Notes() {
    const base::MutexLock lock(mutex_);
    return notes_;
  }
  void AwaitNotes(size_t count) {
    base::UniqueLock lock(mutex_);
    EXPECT_TRUE(news_.wait_for(lock, kSessionTestTimeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return notes_.size() >= count; }));
  }

  // Of a process that the authority knows as `name` and that trusts this job's CA.
  std::shared_ptr<grpc::ChannelCredentials> CertifiedAs(const std::string& name, const security::CertificateAuthority& by) const {
    const security::IssuedCertificate own = *by.Issue(name);
    return grpc::SslCredentials(
        {.pem_root_certs = authority_.certificate_pem(), .pem_private_key = own.private_key_pem, .pem_cert_chain = own.certificate_pem});
  }
  std::shared_ptr<grpc::ChannelCredentials> CertifiedAs(const std::string& name) const { return CertifiedAs(name, authority_); }
  std::shared_ptr<grpc::ChannelCredentials> WithoutCertificate() const {
    return grpc::SslCredentials({.pem_root_certs = authority_.certificate_pem(), .pem_private_key = "", .pem_cert_chain = ""});
  }

  struct Turned {
    std::string reason, message;
    grpc::Status status;
  };
  // What a peer hears that opens with `first` and is turned away.
  Turned TurnedAway(const std::shared_ptr<grpc::ChannelCredentials>& credentials, const v1::ExecutorMessage& first) {
    Peer peer(address_, credentials);
    peer.Say(first);
    const v1::BrokerMessage answer = peer.Hear();
    EXPECT_FALSE(answer.has_welcome());
    return {answer.refusal().reason(), answer.refusal().message(), peer.End()};
  }

  base::TempFolder folder_;
  const security::CertificateAuthority authority_ = *security::CertificateAuthority::Create();
  const std::string token_ = *security::MakeJoinToken(*security::MakeJoinSecret(), authority_.certificate_pem());
  std::unique_ptr<Enrollment> enrollment_;
  std::unique_ptr<ExecutorSessions> executor_sessions_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;

  base::Mutex mutex_;
  std::condition_variable news_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
  base::Mutex leaving_mutex_;
  std::function<void()> leaving_ ABSL_GUARDED_BY(leaving_mutex_);
};

}  // namespace fusionllm::services
