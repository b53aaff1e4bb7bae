"""The grammar of the archs flag: specs joined by ';', each '[compute_N:]code,code...'."""

def _number(arch):
    digits = "".join([c for c in arch.split("_")[-1].elems() if c.isdigit()])
    if not digits or arch.split("_")[0] not in ["sm", "compute"]:
        fail("'%s' is no CUDA architecture; write sm_N or compute_N" % arch)
    return int(digits)

def gencode_flags(specs):
    """nvcc's flags for the specs.

    Args:
        specs: for example "sm_80;compute_90:compute_90,sm_90"

    Returns:
        A list of flags.
    """
    flags = []
    for spec in [s.strip() for s in specs.split(";") if s.strip()]:
        virtual, colon, codes = spec.rpartition(":")
        codes = codes.split(",")
        if not colon:
            lowest = sorted(codes, key = _number)[0]
            virtual = "compute_" + lowest.partition("_")[2]
        for code in codes:
            flags += ["-gencode", "arch=%s,code=%s" % (virtual, code)]
    return flags
