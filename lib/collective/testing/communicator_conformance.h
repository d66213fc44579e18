// What every Communicator must do, whatever carries its tensors. An implementation instantiates the suite with how a rank joins:
//   INSTANTIATE_TEST_SUITE_P(Local, CommunicatorConformance, ::testing::Values(Implementation{.name = "local", .join = ...}));
// and links `communicator_conformance`.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lib/collective/communicator.h"
#include "lib/collective/rendezvous.h"

namespace fusionllm::collective::testing {

// A rank with the memory that its tensors live in.
class TestRank {
 public:
  virtual ~TestRank() = default;
  virtual Communicator& communicator() = 0;
};

struct Implementation {
  std::string name;
  // On the thread that uses the rank from then on.
  std::function<absl::StatusOr<std::unique_ptr<TestRank>>(Rendezvous&, const GroupRank&, const Timeouts&, std::stop_token)> join;
  bool detects_mismatches = false;  // of what ranks call, at once; else they wait until their timeout ends
  bool propagates_errors = false;   // an error of one rank ends the others at once
};
inline std::ostream& operator<<(std::ostream& out, const Implementation& implementation) { return out << implementation.name; }

class CommunicatorConformance : public ::testing::TestWithParam<Implementation> {
 protected:
  using Body = std::function<absl::Status(Communicator&)>;
  // Joins `size` ranks, each on a thread of its own, and runs `body` for each; what it, or joining, answered, by rank.
  std::vector<absl::Status> Run(int size, const Body& body, const Timeouts& timeout = {}) const;
  // The same, where all must end well.
  void MustRun(int size, const Body& body) const;
};

}  // namespace fusionllm::collective::testing
