// Best tokens of logits that threads took in stretches.
#include "cpu/model_results.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "tests/float_tables.h"

namespace specquant::cpu {
namespace {

using reference::float_tables;

TEST_CASE("ties in the best tokens go to the lower id, whoever took which stretch") {
  const int vocabulary = 4 * kVocabularyStretch + 70;
  std::vector<float> logits(static_cast<std::size_t>(vocabulary));
  std::mt19937 random(1);
  for (float& logit : logits) logit = static_cast<float>(random() % 40);
  for (const auto& [isa, table] : float_tables()) {
    CAPTURE(isa);
    // Who takes the stretches: two mixtures, then one thread alone, from the last to the first.
    for (const int owner : {0, 1, 2}) {
      LogitResults results(*table, vocabulary, {}, 2);
      results.start(1, {LogitRows::all, 50, true, true});
      for (int i = 0; i <= 4; ++i) {
        const int stretch = owner == 2 ? 4 - i : i;
        const int first = stretch * kVocabularyStretch;
        results.take(owner == 2 ? 0 : (stretch + owner) % 2, 0, stretch, logits.data() + first,
                     std::min(kVocabularyStretch, vocabulary - first));
      }
      results.finish();
      for (int i = 0; i < 50; ++i) {
        const TopEntry entry = results.top(0)[i];
        int better = 0;
        for (int token = 0; token < vocabulary; ++token) {
          better +=
              logits[token] > entry.logit || (logits[token] == entry.logit && token < entry.token);
        }
        CHECK(better == i);
      }
      CHECK(std::equal(logits.begin(), logits.end(), results.logits(0).begin()));
    }
  }
}

TEST_CASE("best tokens have valid ids even where the logits are not numbers") {
  std::vector<float> logits(200, std::numeric_limits<float>::quiet_NaN());
  logits[150] = 1.0F;
  for (const auto& [isa, table] : float_tables()) {
    LogitResults results(*table, 200, {}, 2);
    results.start(1, {LogitRows::all, 3, false, false});
    results.take(1, 0, 0, logits.data(), 100);
    results.finish();
    for (const TopEntry& entry : results.top(0)) CHECK((entry.token >= 0 && entry.token < 200));
  }
}

}  // namespace
}  // namespace specquant::cpu
