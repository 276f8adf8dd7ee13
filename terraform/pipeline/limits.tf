# What the validations of variables.tf allow.

locals {
  ensemble_sizes = [1, 3, 5, 7, 9]
  instance_type  = "^[a-z][a-z0-9-]*[.][a-z0-9-]+$"
  kept_prefixes  = ["amzn-s3-demo-", "internal-", "sg-", "sthree-", "xn--"]

  # 10/8, 172.16/12, 192.168/16 and 100.64/10, and every block within them.
  private_block = join("|", [
    "^10[.].*/([89]|[12][0-9]|3[0-2])$",
    "^172[.](1[6-9]|2[0-9]|3[01])[.].*/(1[2-9]|2[0-9]|3[0-2])$",
    "^192[.]168[.].*/(1[6-9]|2[0-9]|3[0-2])$",
    "^100[.](6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])[.].*/(1[0-9]|2[0-9]|3[0-2])$",
  ])

  zone_letters = ["a", "b", "c", "d", "e", "f"]
}
