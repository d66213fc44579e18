// Speed of the carriers on one machine: bulk throughput by message size, CPU of both ends together, and the round trip of a small message.
#include <benchmark/benchmark.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>

#include "lib/base/mutex.h"
#include "lib/security/grpc/credentials.h"
#include "lib/transport/emulated_endpoint.h"
#include "lib/transport/grpc/grpc_endpoint.h"
#include "lib/transport/inproc/inproc.h"

namespace fusionllm::transport {
namespace {

class Counter {
 public:
  void Listen(Endpoint& endpoint) {
    endpoint.SetReceiver([this](absl::string_view, const MessageHeader&, Payload) {
      base::MutexLock lock(mu_);
      ++count_;
      changed_.notify_one();
    });
  }
  void WaitFor(size_t count) {
    base::UniqueLock lock(mu_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return count_ >= count; });
  }

 private:
  base::Mutex mu_;
  std::condition_variable changed_;
  size_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

struct Pair {
  InprocNetwork network;
  std::unique_ptr<Endpoint> a, b;
  Counter at_a, at_b;
  void Listen() {
    at_a.Listen(*a);
    at_b.Listen(*b);
  }
  ~Pair() {
    a->Close();
    b->Close();
  }
};

EndpointOptions Named(const char* name) {
  EndpointOptions options;
  options.name = name;
  return options;
}

std::unique_ptr<Pair> InprocPair() {
  auto pair = std::make_unique<Pair>();
  pair->a = pair->network.MakeEndpoint(Named("a"));
  pair->b = pair->network.MakeEndpoint(Named("b"));
  pair->Listen();
  return pair;
}

std::unique_ptr<Pair> GrpcPair(bool tls) {
  auto pair = std::make_unique<Pair>();
  const auto authority = *security::CertificateAuthority::Create();
  const auto make = [&](const char* name) {
    GrpcOptions options{.server_credentials = grpc::InsecureServerCredentials(), .channel_credentials = grpc::InsecureChannelCredentials()};
    if (tls) {
      const security::PemCredentials identity = *security::IssueCredentials(authority, name);
      options = {.server_credentials = *security::MutualTlsServer(identity), .channel_credentials = *security::MutualTlsChannel(identity)};
    }
    return *GrpcEndpoint::Create(Named(name), options);
  };
  auto a = make("a"), b = make("b");
  a->SetPeerAddress("b", "127.0.0.1:" + std::to_string(b->port()));
  b->SetPeerAddress("a", "127.0.0.1:" + std::to_string(a->port()));
  pair->a = std::move(a);
  pair->b = std::move(b);
  pair->Listen();
  return pair;
}

// 20 Mbit/s, 40 ms: what the emulation adds to, and how closely it keeps to, the link it emulates.
std::unique_ptr<Pair> EmulatedPair() {
  auto pair = std::make_unique<Pair>();
  auto buckets = *SharedBuckets::InMemory(std::vector<BucketSpec>{{"ab", 2.5e6}, {"ba", 2.5e6}});
  const auto make = [&](const char* name, const char* peer, const char* bucket) {
    EmulationOptions options;
    options.buckets = buckets;
    options.paths[peer] = {.buckets = {bucket}, .latency_ns = 40'000'000};
    return *MakeEmulatedEndpoint(pair->network.MakeEndpoint(Named(name)), std::move(options));
  };
  pair->a = make("a", "b", "ab");
  pair->b = make("b", "a", "ba");
  pair->Listen();
  return pair;
}

void Throughput(benchmark::State& state, std::unique_ptr<Pair> pair) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  const Payload payload = Payload::Of(tensor::Buffer(bytes));
  size_t sent = 0;
  for (auto _ : state) {
    if (!pair->a->Send("b", {}, payload).ok()) state.SkipWithError("send failed");
    ++sent;
  }
  pair->at_b.WaitFor(sent);
  state.SetBytesProcessed(static_cast<int64_t>(sent * bytes));
}

void RoundTrip(benchmark::State& state, std::unique_ptr<Pair> pair) {
  const Payload payload = Payload::Of(std::string(100, 'x'));
  size_t count = 0;
  for (auto _ : state) {
    ++count;
    if (!pair->a->Send("b", {}, payload).ok()) state.SkipWithError("send failed");
    pair->at_b.WaitFor(count);
    if (!pair->b->Send("a", {}, payload).ok()) state.SkipWithError("send failed");
    pair->at_a.WaitFor(count);
  }
}

void InprocThroughput(benchmark::State& state) { Throughput(state, InprocPair()); }
void GrpcThroughput(benchmark::State& state) { Throughput(state, GrpcPair(false)); }
void GrpcTlsThroughput(benchmark::State& state) { Throughput(state, GrpcPair(true)); }
void InprocRoundTrip(benchmark::State& state) { RoundTrip(state, InprocPair()); }
void GrpcRoundTrip(benchmark::State& state) { RoundTrip(state, GrpcPair(false)); }
void GrpcTlsRoundTrip(benchmark::State& state) { RoundTrip(state, GrpcPair(true)); }
void EmulatedRoundTrip(benchmark::State& state) { RoundTrip(state, EmulatedPair()); }

// One megabyte at 20 Mbit/s and 40 ms takes 0.44 s.
void EmulatedMegabyte(benchmark::State& state) {
  const auto pair = EmulatedPair();
  size_t count = 0;
  for (auto _ : state) {
    if (!pair->a->Send("b", {}, Payload::Of(tensor::Buffer(1'000'000))).ok()) state.SkipWithError("send failed");
    pair->at_b.WaitFor(++count);
  }
}

BENCHMARK(InprocThroughput)->Arg(64 << 10)->Arg(4 << 20)->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK(GrpcThroughput)->Arg(64 << 10)->Arg(4 << 20)->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK(GrpcTlsThroughput)->Arg(64 << 10)->Arg(4 << 20)->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK(InprocRoundTrip)->UseRealTime();
BENCHMARK(GrpcRoundTrip)->UseRealTime();
BENCHMARK(GrpcTlsRoundTrip)->UseRealTime();
BENCHMARK(EmulatedRoundTrip)->UseRealTime();
BENCHMARK(EmulatedMegabyte)->UseRealTime()->MeasureProcessCPUTime();

}  // namespace
}  // namespace fusionllm::transport
