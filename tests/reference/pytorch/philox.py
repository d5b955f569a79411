"""Masks of dropout, drawn a second time: nothing here is taken from executor/philox.hpp.

Philox 4x32-10 is that of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011);
`check` holds it to the known answers of the authors' library (github.com/DEShawResearch/random123,
tests/kat_vectors). A mask's key and its elements' numbers are zeroplan's own: executor/dropout.hpp says what they are.
"""

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # golden ratio, sqrt(3) - 1
WORD = 2**32
LONG = 2**64

KNOWN_ANSWERS = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((WORD - 1,) * 4, (WORD - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
)


def philox(counter, key):
    """Two S-boxes (L, R) -> (mullo(R, M), mulhi(R, M) xor k xor L) in each round, and their outputs exchanged."""
    left = [counter[1], counter[3]]
    right = [counter[0], counter[2]]
    for round_number in range(ROUNDS):
        products = [r * m for r, m in zip(right, MULTIPLIERS)]
        keys = [(k + round_number * w) % WORD for k, w in zip(key, WEYL)]
        new_right = [products[1 - i] // WORD ^ keys[i] ^ left[i] for i in range(2)]
        left = [products[1 - i] % WORD for i in range(2)]
        right = new_right
    return right[0], left[0], right[1], left[1]


def mix(x):
    """The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), as Vigna's splitmix64.c has it."""
    x = (x + 0x9E3779B97F4A7C15) % LONG
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % LONG
    x = (x ^ x >> 27) * 0x94D049BB133111EB % LONG
    return x ^ x >> 31


def key_of(seed, mask, layer):
    name = 0
    for byte in mask.encode():
        name = mix(name ^ byte)
    return mix(mix(mix(seed) ^ name) ^ layer)


def kept_elements(seed, mask, layer, step, elements, dropped):
    """1 where an element of the whole batch's mask stays, 0 where it is dropped."""
    key = key_of(seed, mask, layer)
    lowest_kept = int(dropped * WORD)
    kept = []
    for four in range((elements + 3) // 4):
        drawn = philox((four % WORD, four // WORD, step, 0), (key % WORD, key // WORD))
        kept += [1 if word >= lowest_kept else 0 for word in drawn]
    return kept[:elements]


def check():
    for counter, key, answer in KNOWN_ANSWERS:
        if philox(counter, key) != answer:
            raise SystemExit(f"philox{counter} with the key {key} is {philox(counter, key)}, and should be {answer}")


check()
