// Two processes in two network namespaces, joined by a veth pair that the kernel limits to 50 Mbit/s: the gRPC endpoint on a real slow
// link.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "lib/transport/grpc/grpc_endpoint.h"
#include "lib/transport/testing/mailbox.h"

namespace fusionllm::transport::testing {
namespace {

constexpr size_t kBytes = 5'000'000;
constexpr double kLinkBytesPerS = 50e6 / 8;

struct Outcome {
  int exit_code;
  std::string output;
};

Outcome Shell(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 256> line;
  while (fgets(line.data(), line.size(), pipe) != nullptr) output += line.data();
  return {WEXITSTATUS(pclose(pipe)), output};
}

// The namespaces exist as long as this does.
class Namespaces {
 public:
  Namespaces() : a_("fllm-a-" + std::to_string(getpid())), b_("fllm-b-" + std::to_string(getpid())) {}
  ~Namespaces() {
    Shell("ip netns del " + a_);
    Shell("ip netns del " + b_);
  }
  Outcome Add() {
    Outcome outcome = Shell("ip netns add " + a_);
    return outcome.exit_code == 0 ? Shell("ip netns add " + b_) : outcome;
  }
  Outcome Join() {
    const std::string in_a = "ip -n " + a_ + " ", in_b = "ip -n " + b_ + " ";
    return Shell(in_a + "link add wan type veth peer name wan netns " + b_ + " && " + in_a + "addr add 10.99.0.1/24 dev wan && " + in_b +
                 "addr add 10.99.0.2/24 dev wan && " + in_a + "link set lo up && " + in_b + "link set lo up && " + in_a +
                 "link set wan up && " + in_b + "link set wan up && tc -n " + a_ +
                 " qdisc add dev wan root tbf rate 50mbit burst 64kb latency 200ms");
  }
  const std::string& a() const { return a_; }
  const std::string& b() const { return b_; }

 private:
  std::string a_, b_;
};

// Runs `body` in a process of its own inside a namespace; the process ends with its result. This process itself never starts gRPC, whose
// threads would not survive a fork.
pid_t RunIn(const std::string& name_space, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  const int fd = open(("/var/run/netns/" + name_space).c_str(), O_RDONLY);
  _exit(fd >= 0 && setns(fd, CLONE_NEWNET) == 0 ? body() : 100);
}

std::unique_ptr<GrpcEndpoint> Make(const char* name, const char* address) {
  EndpointOptions options;
  options.name = name;
  options.linger = std::chrono::seconds(20);
  GrpcOptions grpc_options;
  grpc_options.server_credentials = grpc::InsecureServerCredentials();
  grpc_options.channel_credentials = grpc::InsecureChannelCredentials();
  grpc_options.listen_address = address;
  auto endpoint = GrpcEndpoint::Create(options, grpc_options);
  return endpoint.ok() ? *std::move(endpoint) : nullptr;
}

int Receive(int port_pipe) {
  auto endpoint = Make("b", "10.99.0.2:0");
  if (endpoint == nullptr) return 1;
  Mailbox inbox;
  inbox.Listen(*endpoint);
  const int port = endpoint->port();
  if (write(port_pipe, &port, sizeof(port)) != sizeof(port)) return 2;
  if (!inbox.WaitForMessages(1)) return 3;
  const Payload payload = inbox.messages()[0].payload;
  if (payload.size() != kBytes) return 4;
  for (size_t i = 0; i < kBytes; ++i) {
    if (payload.data()[i] != static_cast<std::byte>(i * 7)) return 5;
  }
  endpoint->Close();
  return 0;
}

// Reports through the pipe how long the message took and what bandwidth the endpoint saw.
int Send(int port, int result_pipe) {
  auto endpoint = Make("a", "10.99.0.1:0");
  if (endpoint == nullptr) return 1;
  endpoint->SetPeerAddress("b", "10.99.0.2:" + std::to_string(port));
  tensor::Buffer buffer(kBytes);
  for (size_t i = 0; i < kBytes; ++i) buffer.data()[i] = static_cast<std::byte>(i * 7);
  const auto start = std::chrono::steady_clock::now();
  if (!endpoint->Send("b", {}, Payload::Of(std::move(buffer))).ok()) return 2;
  endpoint->Close();  // lingers until all is acknowledged
  const double result[2] = {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                            endpoint->stats("b").bandwidth_bytes_per_s};
  return write(result_pipe, result, sizeof(result)) == sizeof(result) ? 0 : 3;
}

int ExitCode(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(NetworkNamespaces, FiveMegabytesCrossALinkOfFiftyMegabitsAtItsSpeed) {
  if (geteuid() != 0) GTEST_SKIP() << "NotPermitted: network namespaces need root";
  Namespaces namespaces;
  if (const Outcome added = namespaces.Add(); added.exit_code != 0) {
    if (added.output.find("not permitted") != std::string::npos) GTEST_SKIP() << "NotPermitted: " << added.output;
    if (added.exit_code == 127) GTEST_SKIP() << "NotInstalled: " << added.output;
    FAIL() << added.output;
  }
  const Outcome joined = namespaces.Join();
  // `ip netns exec` makes mounts, which a root folder that is no mount point (chroot) does not allow.
  if (joined.output.find("make-rslave") != std::string::npos) GTEST_SKIP() << "NotPermitted: " << joined.output;
  ASSERT_EQ(joined.exit_code, 0) << joined.output;
  int port_pipe[2], result_pipe[2];
  ASSERT_EQ(pipe(port_pipe), 0);
  ASSERT_EQ(pipe(result_pipe), 0);
  const pid_t receiver = RunIn(namespaces.b(), [&] {
    close(port_pipe[0]);
    return Receive(port_pipe[1]);
  });
  close(port_pipe[1]);
  int port = 0;
  const bool listening = read(port_pipe[0], &port, sizeof(port)) == sizeof(port);
  if (!listening) {
    FAIL() << "the receiver did not start; its exit code is " << ExitCode(receiver);
  }
  const pid_t sender = RunIn(namespaces.a(), [&] { return Send(port, result_pipe[1]); });
  close(result_pipe[1]);
  EXPECT_EQ(ExitCode(sender), 0);
  EXPECT_EQ(ExitCode(receiver), 0);
  double result[2] = {};
  ASSERT_EQ(read(result_pipe[0], result, sizeof(result)), static_cast<ssize_t>(sizeof(result)));
  // No faster than the kernel lets it (a burst of 64 kB aside); how much slower depends on what else this machine does.
  EXPECT_GE(result[0], (kBytes - 65536) / kLinkBytesPerS);
  EXPECT_LE(result[0], 10 * kBytes / kLinkBytesPerS);
  EXPECT_LE(result[1], 1.6 * kLinkBytesPerS);
  RecordProperty("seconds", std::to_string(result[0]));
  std::printf("5 MB in %.2f s; the passive estimate is %.1f Mbit/s\n", result[0], result[1] * 8e-6);
  close(port_pipe[0]);
  close(result_pipe[0]);
}

}  // namespace
}  // namespace fusionllm::transport::testing
