# ops.sh - every public tensor_ function has a row in ops.def: an op, or one of NOT_OPS. The build of the tests runs
# it (Makefile); it says what is missing and fails.
awk '
    FNR == 1 { file = FILENAME; shared = 0 }
    file ~ /ops.def$/ {
        if ($0 ~ /^(UNARY|BINARY|TERNARY|REF|PAIRS|OP)\(/) {
            name = $0
            sub(/^[A-Z]+\( */, "", name)
            twins = name
            sub(/,.*/, "", name)
            sub(/^[^,]*, */, "", twins)
            row[name] = 1
            if (twins ~ /^(HERE|ALL),/) row[name "_"] = 1
            if (twins ~ /^(NUMBER|ALL),/) row[name "_scalar"] = 1
            if (twins ~ /^ALL,/) row[name "_scalar_"] = 1
        }
        others = ($0 ~ /^NOT_OPS\(/) || (others && $0 ~ /^ +"/)
        if (others) {
            line = $0
            sub(/^NOT_OPS\("[^"]*",/, "", line)
            gsub(/[")]/, "", line)
            n = split(line, word, " ")
            for (i = 1; i <= n; i++) row[word[i]] = other[word[i]] = 1
        }
        next
    }
    /^\/\/ >>(nn-)?shared / { shared = 1 }
    shared { next }
    /^TENSOR_API/ && !/\(/ { begun = $0 " "; next }
    begun != "" { $0 = begun $0; begun = "" }
    /^TENSOR_API [^(]*[ *]tensor_[a-zA-Z0-9_]+\(/ {
        name = $0
        sub(/\(.*/, "", name)
        sub(/.*[ *]tensor_/, "", name)
        if (name ~ /^_/) { there[substr(name, 2)] = 1; next }      # behind a macro
        if (name ~ /_defaults$/) next
        base = name
        sub(/_(n|with)$/, "", base)
        sub(/_n_$/, "_", base)
        there[name] = there[base] = 1
        if (!(name in row) && !(base in row)) { print file ": tensor_" name " has no row in tests/ops.def"; bad = 1 }
    }
    END {
        for (name in row) if (!(name in there)) { print "tests/ops.def: there is no tensor_" name; bad = 1 }
        exit bad
    }' tests/ops.def tensor.h tensor_nn.h
