-- The number of {thresholds} that a request's input exceeds.
arrayCount(above -> {{input_sum}} > above, {thresholds:Array(UInt64)})
