// An executor's way to its peers: the transport endpoint, the links it emulates, and the port through which a stage speaks.
//
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/job/topology.h"
#include "lib/runtime/message.h"
#include "lib/transport/endpoint.h"
#include "services/credentials.h"

namespace fusionllm::services {

struct DataPlaneOptions {
  std::string name;
  std::string listen_address = "127.0.0.1:0";
  // HOST:PORT that leads to listen_address from where peers are: a forwarded port, a load balancer. Empty: they dial listen_address itself.
  std::string advertised_address;
  uint64_t incarnation = 0;
  // Of a relay (lib/transport/grpc/relay.h) where peers are met that cannot be dialled; empty: there is none.
  std::string relay_address;
  bool reachable = true;  // peers may dial it; else they use the relay
};

struct LinkMeasurement {
  double rtt_s = 0;
  double bytes_per_s = 0;
};

class DataPlane {
 public:
  // Listens, and answers grpc.health.v1 there. Errors: Unavailable when the address cannot be bound, InvalidArgument for a bad name or
  // advertised address.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Create(const DataPlaneOptions& options, const Credentials& credentials);
  ~DataPlane();

  // What peers are to give to SetPeer: "host:port" or "relay:NAME".
  const std::string& address() const;
  // The same for peers of the same site, which need not go round by an advertised address; empty: address() holds for them, too.
  const std::string& site_address() const;

  // Shapes traffic from now on as the topology says; `state_file` is shared by all executors of the machine. Call once, before any traffic.
  // Errors: those of transport::SharedBuckets and LinkEmulator.
  absl::Status Emulate(const job::LinkTable& links, const std::string& state_file);

  // Where a peer is, and whether in the same site: then it gets site_address() to answer to. A peer that was broken becomes usable
  // again; that it was another process before (`incarnation`, 0: not known) is then no failure of any epoch.
  void SetPeer(const std::string& name, const std::string& address, bool same_site = false, uint64_t incarnation = 0);

  // Measures the link towards a peer with small and large messages that it answers. Blocks, bounded.
  absl::StatusOr<LinkMeasurement> Probe(const std::string& peer);

  // Joins the stage of `epoch` to the network: messages of that epoch go to `inbox`; when one of `peers` breaks the inbox is cancelled and
  // `on_lost` called. The port is always the same: it speaks for the epoch attached last, and its stages are the places in those `peers`.
  runtime::MessagePort& Attach(uint32_t epoch, std::vector<std::string> peers, std::shared_ptr<runtime::Inbox> inbox,
                               std::function<void(const std::string& peer)> on_lost);
  // Drops what belongs to `epoch` and before.
  void Detach(uint32_t epoch);

  transport::LinkStats stats(const std::string& peer) const;
  // Of messages of evaluations, sent to a peer since the last Attach; framing aside.
  int64_t evaluation_bytes(const std::string& peer) const;
  void Close();

 private:
  class Impl;
  explicit DataPlane(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fusionllm::services
