// What is read of the data and what of it is held out, where a job leaves that open. A run that goes on must not train on what it held out
// before, nor count its place in the order over other samples: it keeps the rules of its checkpoint.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/job/fusion_job.h"

namespace fusionllm::job {

struct DataRules {
  TextEncoding encoding = TextEncoding::kUtf8;
  Split split = Split::kEven;
  bool operator==(const DataRules&) const = default;
};

// As written, else the defaults.
DataRules DataRulesOf(const Data& data);

// Of a checkpoint's job. One that leaves them open was made by a release that had none of these fields: it read any bytes and held out the
// end. Where nothing was held out there is nothing to keep apart, so the default holds.
DataRules DataRulesOfCheckpoint(const Data& data);

// Writes down what applies and is open.
void FixDataRules(const DataRules& rules, Data& data);

// What FixDataRules would write, where that is no default: "spec.data.encoding: bytes".
std::vector<std::string> FieldsOfRules(const DataRules& rules, const Data& data);

}  // namespace fusionllm::job
