// The feature gates of earlier versions: all are on for good. For one more version --feature-gates and `featureGates` are read all the
// same, so that no settings break without a word: a gate that is on is warned of, one that is off is an error.
#pragma once

#include <string>

#include "lib/job/document.h"

namespace fusionllm::op::manager {

// "SchedulerAdvice, MeasuredLinks, DryRunTrials".
std::string RemovedGateNames();
// What is wrong with "Name=true,Other=true" as the value of --feature-gates; empty: nothing.
std::string CheckRemovedGates(const std::string& text);
// Takes `featureGates` out of the file, and adds what is wrong with it to `problems`. True: it was there.
bool TakeRemovedGates(job::Node& root, job::Problems& problems);

}  // namespace fusionllm::op::manager
